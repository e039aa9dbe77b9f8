#!/usr/bin/env python3
"""What PyTorch and transformers do with a model on this machine's first GPU, eagerly and one request after the other. A part of
./dev gpu pack.

gpu_eager.py MODEL PROMPT OUTPUT   MODEL: a Hugging Face directory; PROMPT, OUTPUT: tokens of each request.

Exit status: 77 if they or the GPU are not here.
"""
import sys
import time

REQUESTS = 3

try:
    import torch
    import transformers
except ImportError as error:
    print(f"PyTorch and transformers are not here: {error}")
    sys.exit(77)
if not torch.cuda.is_available():
    print(f"PyTorch {torch.__version__} sees no GPU")
    sys.exit(77)
prompt, output = int(sys.argv[2]), int(sys.argv[3])
transformers.utils.logging.disable_progress_bar()
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="sdpa").to("cuda", torch.bfloat16).eval()
random = torch.Generator().manual_seed(1)


def answer():
    """The tokens of one answer."""
    tokens = torch.randint(5, model.config.vocab_size, (1, prompt), generator=random).cuda()
    found = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=output, min_new_tokens=output,
                           do_sample=False, use_cache=True, pad_token_id=0)
    torch.cuda.synchronize()
    return found.shape[1] - prompt


answer()  # what happens once only
begin = time.monotonic()
tokens = sum(answer() for _ in range(REQUESTS))
seconds = time.monotonic() - begin
print(f"PyTorch {torch.__version__}, eagerly: {REQUESTS} requests of {prompt} + {output} tokens one by one in {seconds:.2f} s: "
      f"{tokens / seconds:.1f} output tokens/s, {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB at most")
