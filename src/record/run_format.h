#pragma once

#include <string_view>

// The bytes of run_record.h's files.
namespace quire {

inline constexpr std::string_view kFormatKey = "quire_run";
inline constexpr int kFormat = 2;

// The kinds of records; a decision's is kFirstDecision + its DecisionKind.
inline constexpr char kAddRecord = 'a';
inline constexpr char kAbortRecord = 'x';
inline constexpr char kStopRecord = 's';  // an abort by a stop string
inline constexpr char kBudgetRecord = 'b';
inline constexpr char kPlanRecord = 'p';
inline constexpr char kCommitRecord = 'c';
inline constexpr char kResetRecord = 'r';
inline constexpr char kRestoreRecord = 'w';
inline constexpr char kEndRecord = 'e';
inline constexpr char kFirstDecision = 0x01;

}  // namespace quire
