#!/usr/bin/env python3
"""Prints what each kernel of src/backend/cuda takes of a multiprocessor, as nvcc compiled it for libquire_cuda.so. Fails if one of
them spills registers, at any warning, or if attention to few tokens has less than 32 KiB of K and V on their way to a multiprocessor, or a product of
few rows or with experts of weights. With nvdisasm it also checks the machine code: that each entry of ptx.h became the instruction that
it stands for, that kernels that move much move 16 bytes at a time, and that those that begin early wait before they touch memory.

check_cuda.py [--arch 80,90] [--nvdisasm PATH] KERNELS

KERNELS: the folder of the build with what nvcc said of each source (NAME.cu.log), and its cubins.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Of a multiprocessor, by compute capability: threads, blocks and KiB of shared memory ("Compute Capabilities" in NVIDIA's CUDA C++
# Programming Guide).
REGISTERS = 65536
LIMITS = {"80": (2048, 32, 164), "86": (1536, 16, 100), "89": (1536, 24, 100), "90": (2048, 32, 228), "100": (2048, 32, 228),
          "120": (1536, 24, 100)}
RESERVED = 1024  # bytes of shared memory that each block takes besides its own
# That a multiprocessor must have asked for where memory is what bounds a kernel. Memory of GDDR gives each of the multiprocessors of its
# devices, which have little shared memory, at most half of what HBM gives an A100's and a third of an H200's.
BYTES_IN_FLIGHT = 32 << 10
GDDR_BYTES_IN_FLIGHT, GDDR_SHARED_KIB = 16 << 10, 100

# Multiprocessors of the devices whose decodes are compared with them, and the shape of these: Llama 3.2 1B.
DEVICES = {"80": ("A100", 108), "90": ("H200", 132)}
BATCHES = (1, 8, 64)
KV_HEADS, HEAD_DIM, CONTEXT, SPAN = 8, 64, 4096, 1024
BLOCKS_TO_SHARE = int(re.search(r"kBlocksToShare = (\d+);", (ROOT / "src/backend/cuda/cuda_ops.cpp").read_text())[1])

# By kernel: the instructions that it must have.
PIECES_IN_AND_OUT = [r"LDG\.E\.128.*", r"STG\.E\.128"]
KERNEL_CODE = {
    "attend_kernel": [r"LDG\.E\.128\.CONSTANT", r"STS\.128", r"LDS\.128", r"MUFU\.EX2"],
    "attend_rows_kernel": [r"LDG\.E\.128\.CONSTANT", r"LDGSTS\.E\.BYPASS\.128", r"STS\.128", r"LDSM\.16\.M88\.4", r"LDSM\.16\.MT88\.4",
                           r"HMMA\.16816\.F32(\.BF16)?", r"MUFU\.EX2"],
    "few_rows_kernel": [r"LDGSTS\.E\.BYPASS\.128", r"LDSM\.16\.M88\.4", r"HMMA\.16816\.F32(\.BF16)?"],
    "expert_product_kernel": [r"LDGSTS\.E\.BYPASS\.128", r"LDSM\.16\.M88\.4", r"HMMA\.16816\.F32(\.BF16)?", r"STG\.E\.128"],
    "int8_product_kernel": [r"LDGSTS\.E\.BYPASS\.128", r"LDS\.128", r"I2F.*", r"LDSM\.16\.M88\.4", r"HMMA\.16816\.F32(\.BF16)?",
                            r"STG\.E\.128"],
    "expert_product_f32_kernel": [r"LDG\.E\.128\.CONSTANT"],
    "combine_choices_kernel": PIECES_IN_AND_OUT,
    "rms_norm_kernel": [*PIECES_IN_AND_OUT, r"MUFU\.RSQ"],
    "embed_kernel": PIECES_IN_AND_OUT,
    "gated_kernel": PIECES_IN_AND_OUT,
    "add_kernel": PIECES_IN_AND_OUT,
    "copy_blocks_kernel": PIECES_IN_AND_OUT,
    "sample_kernel": PIECES_IN_AND_OUT,
    "sample_best_kernel": [r"LDG\.E\.128.*", r"SHFL\.BFLY"],
    # The entries of ptx.h, ptx_float.h and ptx_mma.h: tests/device_on_host/ptx_probe.cu has a kernel for each.
    "probe_load_128": [r"LDG\.E\.128", r"STG\.E\.128"],
    "probe_load_readonly_128": [r"LDG\.E\.128\.CONSTANT"],
    "probe_shared_128": [r"STS\.128", r"LDS\.128"],
    "probe_load_matrices": [r"LDSM\.16\.M88\.4"],
    "probe_load_transposed": [r"LDSM\.16\.MT88\.4"],
    "probe_multiply_add<Bf16>": [r"HMMA\.16816\.F32\.BF16"],
    "probe_multiply_add<F16>": [r"HMMA\.16816\.F32"],
    "probe_store_64": [r"STG\.E\.64"],
    "probe_copy_async": [r"LDGSTS\.E\.BYPASS\.128", r"LDGDEPBAR", r"DEPBAR\.LE"],
    "probe_fused": [r"FFMA"],
    "probe_fused_pair<Bf16>": [r"HFMA2\.(BF16|MMA\.BF16).*"],
    "probe_fused_pair<F16>": [r"HFMA2(\.MMA)?"],
    "probe_product": [r"FMUL", r"FADD"],
    "probe_exp2_approx": [r"MUFU\.EX2"],
    "probe_rsqrt_approx": [r"MUFU\.RSQ"],
    "probe_reciprocal_approx": [r"MUFU\.RCP"],
    "probe_to_bf16": [r"F2FP?\.BF16(\.F32)?(\.PACK_AB)?"],
    "probe_to_f16": [r"F2FP?(\.F16)?(\.F32)?(\.PACK_AB)?"],
    "probe_from_f16": [r"HADD2\.F32|F2F\.F32\.F16"],
}
# What makes elements of nibbles.
INT4_CODE = [r"HFMA2.*"]
# What begins a kernel that may begin before those before it have ended, for devices that can: all of the backend's. Until the second
# of them it touches no memory.
EARLY_CODE = ["PREEXIT", "ACQBULK"]
EARLY_SINCE = 90
MEMORY_CODE = re.compile(r"(LDG|STG|LD|ST|LDGSTS|RED|ATOMG?)(\..*)?")
# But for what begins to copy weights, which nobody writes while a model runs.
COPY_CODE = re.compile(r"LDGSTS\..*")
COPIES_EARLY = {"few_rows_kernel", "int8_product_kernel"}


def plain_names(symbols):
    """Mangled names -> those of the kernels with their template arguments."""
    listed = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout
    def shorten(name):
        name = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N_\w+::", "", name)
        name = re.sub(r"quire::(backend::cuda|test::fibers)::|^void ", "", name)
        name = re.sub(r"\b(\d+)u\b", r"\1", name)
        return re.sub(r"\(.*", "", name)
    return {symbol: shorten(name) for symbol, name in zip(symbols, listed.splitlines())}


USAGE = re.compile(r"Compiling entry function '(?P<kernel>\w+)' for 'sm_(?P<arch>\w+)'.*?\n"
                   r"(?:.*\n)?\s*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\s*\n"
                   r".*?Used (?P<registers>\d+) registers(?P<rest>.*)")


def kernels_of(source, arch, built):
    """What each kernel of a source takes on a device."""
    said = (built / f"{source.name}.log").read_text()
    return [match.groupdict() for match in USAGE.finditer(said) if match["arch"] == arch]


def warnings_of(source, built):
    return [line for line in (built / f"{source.name}.log").read_text().splitlines() if re.search(r"\bwarning\b", line, re.I)]


def cubin_of(source, arch, built):
    # Its name depends on whether the PTX is kept too; one of another name may be older.
    return max(built.glob(f"{source.stem}.compute_{arch}.*cubin"), key=lambda cubin: cubin.stat().st_mtime_ns)


def threads_of(source):
    """The threads of the blocks of a source's kernels, which it says itself or a header that it includes; 0: nobody does."""
    text = source.read_text()
    headers = [ROOT / "src" / name for name in re.findall(r'#include "(backend/cuda/\S+)"', text)]
    for said in [text, *(header.read_text() for header in headers)]:
        if found := re.search(r"constexpr uint32_t k(?:Most)?Threads = (\d+);", said):
            return int(found[1])
    return 0


def machine_code(nvdisasm, cubin):
    """Mangled name of a kernel -> the opcodes that it has, in order."""
    listed = subprocess.run([nvdisasm, str(cubin)], capture_output=True, text=True, check=True).stdout
    opcodes = {}
    kernel = None
    for line in listed.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            kernel = opcodes.setdefault(section[1], [])
        elif kernel is not None and (found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line)):
            kernel.append(found[1])
    return opcodes


def missing_code(name, opcodes):
    wanted = KERNEL_CODE.get(name) or KERNEL_CODE.get(re.sub(r"<.*", "", name), [])
    if "<Int4," in name:
        wanted = wanted + INT4_CODE
    return [pattern for pattern in wanted if not any(re.fullmatch(pattern, opcode) for opcode in opcodes)]


def code_complaints(name, arch, opcodes):
    for pattern in missing_code(name, opcodes):
        yield f"{name} for sm_{arch} has no instruction {pattern}"
    if (name.startswith("probe_") and name != "probe_early") or int(arch) < EARLY_SINCE:
        return
    missing = [opcode for opcode in EARLY_CODE if opcode not in opcodes]
    if missing:
        yield f"{name} for sm_{arch} begins early, and has no instruction {missing[0]}"
        return
    before = [opcode for opcode in opcodes[:opcodes.index(EARLY_CODE[1])] if MEMORY_CODE.fullmatch(opcode)]
    if re.sub(r"<.*", "", name) in COPIES_EARLY:
        if not before:
            yield f"{name} for sm_{arch} begins to copy weights only after it waits for earlier kernels"
        before = [opcode for opcode in before if not COPY_CODE.fullmatch(opcode)]
    if before:
        yield f"{name} for sm_{arch} has {before[0]} before it waits for earlier kernels"


# As kernels name how they are launched: src/backend/cuda/paged_attention.cu.
LAUNCH = re.compile(r"ThreadBlock<(?P<threads>\d+), (?P<stacks>\d+), (?P<sharers>\d+), (?P<stages>\d+), (?P<shared>\d+), "
                    r"(?P<in_flight>\d+)>")
# src/backend/cuda/few_rows.cu and expert_product.cu
RING = re.compile(r"Ring<(?P<stages>\d+), (?P<shared>\d+), (?P<in_flight>\d+)>")
# src/backend/cuda/int8_product.cu, and the shape of the blocks that multiply few rows there
BLOCK_RING = re.compile(r"BlockRing<(?P<threads>\d+), (?P<stages>\d+), (?P<shared>\d+), (?P<in_flight>\d+)>")
FEW_ROWS = re.compile(r"Shape<Int\d, 1, 1, 1, 1,")
SMALL_ROWS = 64
DEEP_KIB = 228  # of a multiprocessor: then small tiles have as many stages as there is room for, more than the shared memory
UNASKED_KIB = 48  # that holds those that they have elsewhere


def rows_of(launch):
    """Those of a tile: 16 of each stack of each warp, or of so many as share it."""
    return int(launch["threads"]) // 32 // int(launch["sharers"]) * int(launch["stacks"]) * 16


def resident_blocks(arch, threads, registers, shared):
    """The blocks that a multiprocessor holds at once."""
    most_threads, most_blocks, shared_kib = LIMITS.get(arch, LIMITS["86"])
    # Registers are handed out to a warp by eights.
    by_registers = REGISTERS // ((registers + 7) // 8 * 8 * threads)
    return min(by_registers, most_blocks, most_threads // threads, (shared_kib << 10) // (shared + RESERVED))


def is_memory_bound(name, launch):
    """Whether it multiplies few rows or by experts, or attends to few tokens, with heads that large models have."""
    if launch.re is BLOCK_RING:
        return FEW_ROWS.search(name) is not None
    return launch.re is RING or rows_of(launch) == SMALL_ROWS and int(re.search(r"<\w+, (\d+)", name)[1]) >= HEAD_DIM


def report_decodes(arch, name, blocks, shares_spans):
    """Prints how the blocks of decodes fill a device, where the backend would launch this kernel for them."""
    device, multiprocessors = DEVICES[arch]
    for batch in BATCHES:
        needed = batch * KV_HEADS
        if (needed < BLOCKS_TO_SHARE) != shares_spans:
            continue
        needed *= CONTEXT // SPAN if shares_spans else 1
        print(f"    {batch} decodes of {CONTEXT} tokens: {needed} blocks for {multiprocessors} multiprocessors of an {device}, "
              f"which hold {blocks * multiprocessors}")


def report(source, arch, rows, names):
    """Prints a row for each kernel; yields complaints."""
    for row in rows:
        name = names[row["kernel"]]
        spills = int(row["stores"]) + int(row["loads"])
        if spills or int(row["stack"]):
            yield f"{name} for sm_{arch} spills: {spills} bytes, stack {row['stack']}"
        if name.startswith("probe_"):
            continue
        launch = LAUNCH.search(name) or BLOCK_RING.search(name) or RING.search(name)
        threads = int(launch["threads"]) if launch and launch.re is not RING else threads_of(source)
        static = re.search(r"(\d+) bytes smem", row["rest"])
        shared = int(launch["shared"] if launch else 0) + int(static[1] if static else 0)
        registers = int(row["registers"])
        blocks = resident_blocks(arch, threads, registers, shared) if threads else 0
        in_flight = int(launch["in_flight"]) * blocks if launch else 0
        short = LAUNCH.sub(lambda said: f"{rows_of(said)} rows, {said['stages']} stages", name)
        short = BLOCK_RING.sub(lambda said: f"{said['stages']} stages", short)
        short = RING.sub(lambda said: f"{said['stages']} stages", short).replace(" >", ">")
        print(f"{short:52} sm_{arch:4} {threads:7} {registers:9} {shared:7} {blocks:6} {in_flight or '':>9} {spills:6}")
        if launch and is_memory_bound(name, launch):
            wanted = GDDR_BYTES_IN_FLIGHT if LIMITS.get(arch, LIMITS["86"])[2] == GDDR_SHARED_KIB else BYTES_IN_FLIGHT
            if in_flight < wanted:
                yield f"{name} for sm_{arch} has {in_flight} bytes in flight in a multiprocessor, not {wanted}"
            is_deep = int(launch["shared"]) > UNASKED_KIB << 10
            if arch in DEVICES and name.startswith(f"attend_rows_kernel<Bf16, {HEAD_DIM},") and is_deep == (LIMITS[arch][2] == DEEP_KIB):
                report_decodes(arch, name, blocks, ", true" in name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kernels", type=pathlib.Path)
    parser.add_argument("--arch", default="80,90", help="comma-separated compute capabilities without their dots")
    parser.add_argument("--nvdisasm", help="checks the machine code too")
    options = parser.parse_args()
    complaints = []
    checked = 0
    probes = ROOT / "tests/device_on_host/ptx_probe.cu"
    print("Of a block its threads, their registers and its shared memory (dynamic as far as the kernel's name says it); of a "
          "multiprocessor the blocks and the bytes of K and V on their way.")
    print(f"{'kernel':52} {'device':7} {'threads':>7} {'registers':>9} {'shared':>7} {'blocks':>6} {'in flight':>9} {'spills':>6}")
    for arch in options.arch.split(","):
        for source in [*sorted((ROOT / "src/backend/cuda").glob("*.cu")), probes]:
            rows = kernels_of(source, arch, options.kernels)
            complaints += warnings_of(source, options.kernels)
            names = plain_names([row["kernel"] for row in rows])
            if not rows:
                complaints.append(f"{source.name} for sm_{arch}: ptxas names no kernel")
            complaints += report(source, arch, rows, names)
            if not options.nvdisasm:
                continue
            code = machine_code(options.nvdisasm, cubin_of(source, arch, options.kernels))
            for symbol, name in names.items():
                checked += 1
                complaints += code_complaints(name, arch, code.get(symbol, []))
    if options.nvdisasm:
        print(f"{checked} kernels looked at in machine code")
    print("\n".join(complaints), file=sys.stderr, end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
