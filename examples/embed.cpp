// A program with libquire in it: embed MODEL PROMPT prints the likeliest continuation as it is computed.
//   g++ -std=c++20 embed.cpp -o embed $(pkg-config --cflags --libs quire)
#include <iostream>
#include <quire/quire.h>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: embed MODEL PROMPT\n";
    return 2;
  }
  try {
    quire::Model model(argv[1]);
    quire::Stream answer = model.complete(argv[2], {.max_tokens = 60, .temperature = 0});
    for (const std::string& piece : answer) std::cout << piece << std::flush;
    const quire::Usage usage = answer.usage();
    std::cerr << usage.prompt_tokens << " tokens read, " << usage.completion_tokens << " written\n";
  } catch (const quire::Exception& error) {
    std::cerr << "embed: " << error.what() << "\n";
    return 1;
  }
}
