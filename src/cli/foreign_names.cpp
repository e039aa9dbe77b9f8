#include "cli/foreign_names.h"

#include <algorithm>

namespace quire::cli {
namespace {

constexpr ForeignName kFlags[] = {
    {"-m --model --model-path --model-tag", "model", "the model is given without a flag: {} PATH"},
    {"-hf -hfr --hf-repo --hf-file --hf-token --download-dir --model-url --revision", "",
     "quire downloads nothing: give the path of a model that is here"},
    {"--tokenizer --tokenizer-mode --tokenizer-path --hf-config-path --load-format", "model",
     "the tokenizer and the config are the model's own"},
    {"--mem-fraction-static --cpu-offload-gb", "--kv-cache-memory",
     "--kv-cache-memory SIZE says how much memory K/V takes"},
    {"--tensor-parallel-size -tp --pipeline-parallel-size -pp --data-parallel-size -dp --tp-size --dp-size "
     "--distributed-executor-backend --split-mode -sm --tensor-split -ts --main-gpu -mg",
     "--threads", "quire computes on the cores of one machine; --threads says on how many"},
    {"-ngl --n-gpu-layers --gpu-layers --num-gpu", "",
     "quire computes on the CPU, there are no layers to move"},
    {"-c --ctx-size --num-ctx --n-ctx --context-length --max-seq-len --max-total-tokens", "--max-model-len",
     "--max-model-len N bounds a sequence"},
    {"-np --parallel --max-running-requests --num-parallel", "--max-num-seqs",
     "--max-num-seqs N says how many sequences run at once"},
    {"-b --batch-size -ub --ubatch-size --chunked-prefill-size --max-prefill-tokens",
     "--max-num-batched-tokens", "--max-num-batched-tokens N bounds a step"},
    {"--enable-chunked-prefill --no-enable-chunked-prefill -cb --cont-batching", "--max-num-batched-tokens",
     "prompts always come in chunks, batches are continuous; --max-num-batched-tokens bounds a step"},
    {"-t --n-threads -tb --threads-batch", "--threads", "--threads N"},
    {"-n --n-predict --predict --num-predict --max-new-tokens --max-length", "--max-tokens",
     "--max-tokens N bounds an answer"},
    {"--temp", "--temperature", "--temperature T"},
    {"--repeat-penalty", "--repetition-penalty", "--repetition-penalty R"},
    {"-s --random-seed", "--seed", "--seed N"},
    {"-f --file --prompt-file", "--prompt", "{} MODEL < FILE reads the prompt from standard input"},
    {"-sys --system-prompt", "--system", "--system TEXT"},
    {"-ctk -ctv --cache-type-k --cache-type-v", "--kv-cache-dtype", "--kv-cache-dtype TYPE, of both K and V"},
    {"--kv-cache-memory-gb --max-kv-size", "--kv-cache-memory", "--kv-cache-memory SIZE"},
    {"-a --alias --served-name", "--served-model-name", "--served-model-name NAME"},
    {"--jinja --chat-template-file", "--chat-template", "--chat-template FILE"},
    {"--enable-radix-cache --disable-radix-cache --no-cache-prompt --cache-prompt", "--enable-prefix-caching",
     "--enable-prefix-caching and --no-enable-prefix-caching"},
    {"--enable-auto-tool-choice --tool-parser-plugin", "--tool-call-parser",
     "tool calls are parsed as the chat template teaches them; --tool-call-parser NAME chooses another way"},
    {"--enable-reasoning --reasoning-format", "--reasoning-parser", "--reasoning-parser NAME"},
    {"--schedule-policy", "--scheduling-policy", "--scheduling-policy NAME"},
    {"--enforce-eager --compilation-config --cuda-graph-sizes --trust-remote-code", "",
     "nothing here is compiled or run from a model's directory: leave it out"},
    {"--base-url --host", "--url", "--url http://HOST:PORT"},
    {"--port", "--url", "--url http://HOST:PORT"},
    {"--backend --endpoint-type", "--endpoint", "--endpoint completions, or chat"},
    {"--request-rate-per-second --qps", "--rate", "--rate R"},
    {"--random-input-len --sharegpt-output-len", "--prompt-len", "--prompt-len and --output-len"},
    {"--random-output-len", "--output-len", "--output-len LENGTH"},
    {"--dataset-name --dataset-path", "--trace",
     "--trace FILE, or a workload that is drawn (--prompt-len ...)"},
    {"--goodput", "--slo", "--slo ttft=500ms,tpot=50ms"},
    {"--save-result --result-filename", "--json", "--json"},
};

constexpr ForeignName kCommands[] = {
    {"generate complete completion cli prompt main", "", "quire run MODEL -p TEXT continues a text"},
    {"server api api_server start up", "", "quire serve MODEL serves a model"},
    {"show info ls list models ps", "", "quire inspect MODEL describes a model"},
    {"pull download login", "", "quire downloads nothing: give the path of a model that is here"},
    {"quantize", "", "quire serve MODEL --quantization int8 quantizes the weights as it loads them"},
    {"benchmark load", "", "quire bench serve puts load on a running server"},
    {"throughput", "", "quire bench throughput MODEL"},
    {"latency", "", "quire bench latency MODEL"},
    {"ops", "", "quire bench ops"},
    {"ppl eval", "", "quire perplexity MODEL FILE"},
    {"encode", "", "quire tokenize MODEL"},
    {"decode", "", "quire detokenize MODEL"},
    {"version", "", "quire --version"},
};

bool is_among(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

const ForeignName* find_foreign_flag(std::string_view name,
                                     const std::function<bool(std::string_view)>& has) {
  for (const ForeignName& each : kFlags) {
    if (is_among(each.names, name) && (each.ours.empty() || has(each.ours))) return &each;
  }
  return nullptr;
}

const ForeignName* find_foreign_command(std::string_view name) {
  for (const ForeignName& each : kCommands) {
    if (is_among(each.names, name)) return &each;
  }
  return nullptr;
}

}  // namespace quire::cli
