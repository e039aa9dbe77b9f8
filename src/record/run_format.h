#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// The format of decision logs (run_record.h): a line of JSON, then log blocks. A log block has a head, an
// index and records.
namespace quire::record {

inline constexpr std::string_view kFormatKey = "quire_run";
inline constexpr int kFormat = 4;
// In the first line, only of a log in parts: the number of the part, and how many steps were planned before.
inline constexpr std::string_view kPartKey = "part";
inline constexpr std::string_view kStepsKey = "steps_before";
inline constexpr std::string_view kWarningKey = "warning";  // in the first line, where there is one

// The kinds of records. The kind of a decision is kFirstDecision + its DecisionKind, that of a cause is
// kFirstCause + its CauseKind.
inline constexpr char kAddRecord = 'a';
inline constexpr char kWantsRecord = 'q';    // what the sequence of the add behind it wants of its prompt
inline constexpr char kRefusedRecord = 'f';  // the add before it was refused
inline constexpr char kAbortRecord = 'x';
inline constexpr char kStopRecord = 's';  // an abort by a stop string
inline constexpr char kBudgetRecord = 'b';
inline constexpr char kPlanRecord = 'p';
inline constexpr char kCommitRecord = 'c';
inline constexpr char kResetRecord = 'r';
inline constexpr char kRestoreRecord = 'w';
inline constexpr char kEndRecord = 'e';
inline constexpr char kCachedRecord = 'i';   // the cached blocks; the first of a part, except the first part
inline constexpr char kPartEndRecord = 'n';  // the last of a part that another follows
inline constexpr char kFirstDecision = 0x01;
inline constexpr char kFirstCause = 0x20;

// The entries of a log block's index, in the order of its records; each has the sequence's id and the number
// of steps that were planned before.
inline constexpr char kAddedEntry = 'a';  // with its name; also for a refused sequence
inline constexpr char kEndedEntry = 'e';

/// The head of a log block: 36 bytes, little-endian, in this order. Checksums are CRC-32, seeded with the
/// checksum of the file's first line, so that a log block of another file is detected.
struct BlockHead {
  static constexpr size_t kBytes = 36;
  static constexpr uint32_t kMark = 0x4B4C4251;  // "QBLK"

  uint32_t mark = kMark;
  uint32_t number = 0;  // in the file, counted from 0
  uint64_t steps = 0;   // planned up to its end
  uint32_t index_bytes = 0;
  uint32_t record_bytes = 0;
  uint32_t index_check = 0;
  uint32_t record_check = 0;
  uint32_t head_check = 0;  // of all fields before it
};

/// CRC-32 of `bytes`, continued from `before`.
uint32_t checksum(std::string_view bytes, uint32_t before);

/// The bytes of a head for these parts; `seed`: the checksum of the file's first line.
std::string block_head(uint32_t number, uint64_t steps, std::string_view index, std::string_view records,
                       uint32_t seed);
/// Reads a head. REQUIRES: kBytes bytes. False if they are damaged.
bool read_block_head(std::string_view bytes, uint32_t seed, BlockHead& out);

}  // namespace quire::record
