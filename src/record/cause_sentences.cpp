#include "record/cause_sentences.h"

namespace quire::record {

void CauseSentences::add(uint64_t tenant) {
  tenants_.push_back(tenant);
  names_.add(tenant);
}

void CauseSentences::take(const control::Cause& cause, size_t seq) {
  if (seq >= tenants_.size()) return;  // of a damaged record
  const control::Standing own{cause.ground, cause.value};
  if (cause.kind == control::CauseKind::kFirst) {
    first_ = own;
    first_tenant_ = tenants_[seq];
    ++first_changes_;
    const auto found = compared_.find(seq);
    if (found != compared_.end()) found->second.precedence.own = own;
  } else if (cause.kind == control::CauseKind::kBehind) {
    Precedence now{.first = first_, .own = own, .first_tenant = first_tenant_, .own_tenant = tenants_[seq]};
    now.compare();
    compared_[seq] = {.precedence = now};
  }
}

uint32_t CauseSentences::why_behind(size_t seq) {
  const auto found = compared_.find(seq);
  if (found == compared_.end()) {
    if (uncompared_ == 0) uncompared_ = sentence_of({});
    return uncompared_;
  }
  Compared& of = found->second;
  if (of.at == first_changes_) return of.sentence;
  of.precedence.first = first_;
  of.precedence.first_tenant = first_tenant_;
  of.sentence = sentence_of(of.precedence);
  of.at = first_changes_;
  return of.sentence;
}

CauseSentences::Key CauseSentences::key_of(const Precedence& of) {
  const control::Ground ground = of.first.ground;
  if (ground != control::Ground::kPriority && ground != control::Ground::kShare)
    return {of.kind(), 0, 0, 0, 0};
  return {of.kind(), of.first.value, of.own.value, of.first_tenant, of.own_tenant};
}

uint32_t CauseSentences::sentence_of(const Precedence& of) {
  uint32_t& number = by_key_[key_of(of)];
  if (number == 0) {
    number = number_of(precedence_text(of, [&](uint64_t tenant) { return names_.name(tenant); }));
  }
  return number;
}

uint32_t CauseSentences::number_of(std::string sentence) {
  const auto [found, is_new] = by_text_.try_emplace(sentence, static_cast<uint32_t>(sentences_.size() + 1));
  if (is_new) {
    bytes_ += sentence.size();
    sentences_.push_back(std::move(sentence));
  }
  return found->second;
}

}  // namespace quire::record
