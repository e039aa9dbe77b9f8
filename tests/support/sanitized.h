#pragma once

// May be given to the compiler for a test that is as slow for another reason.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUIRE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define QUIRE_SANITIZED 1
#endif
#endif
#ifndef QUIRE_SANITIZED
#define QUIRE_SANITIZED 0
#endif

namespace quire::test {

/// Whether this build runs under a sanitizer, many times slower: tests whose cost is repetition, not variety,
/// then repeat less.
inline constexpr bool kSanitized = QUIRE_SANITIZED != 0;

}  // namespace quire::test
