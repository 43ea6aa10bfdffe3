// An explicit-state model checker. It visits every state that any interleaving of the model's actors can reach, in
// breadth-first order, and returns the shortest trace to a violation. In addition to the model's own checks, the final
// state must be reachable from every state: that detects deadlocks, pages that are stuck, and faults that repeat
// forever.
#pragma once
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace farside::model {

struct Outcome {
  size_t states = 0;
  std::string violation;  // "": none
  std::string trace;      // one line per step
};

// A model has a State without padding, which is compared byte by byte, kActors, start(), step(state, actor, &wrong),
// check(), done(), check_done() and describe().
template <typename Model>
class Explorer {
 public:
  explicit Explorer(const Model& model) : model_(model) {}

  Outcome explore() {
    Outcome outcome;
    visit(model_.start(), kNoActor, 0);
    for (size_t at = 0; at < states_.size(); at++) {
      if (const char* wrong = expand(at)) return fail(wrong, states_.size() - 1);
    }
    size_t stuck = find_stuck();
    if (stuck != kNone) return fail("the final state cannot be reached: a deadlock or an endless fault", stuck);
    outcome.states = states_.size();
    return outcome;
  }

 private:
  using State = typename Model::State;
  static constexpr unsigned kNoActor = ~0u;
  static constexpr size_t kNone = ~size_t{0};
  struct Hash {
    size_t operator()(const State& s) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&s), sizeof s});
    }
  };
  struct Equal {
    bool operator()(const State& a, const State& b) const { return memcmp(&a, &b, sizeof a) == 0; }
  };
  struct Origin {
    size_t from;
    unsigned actor;
  };

  size_t visit(const State& s, unsigned actor, size_t from) {
    auto [it, fresh] = index_.emplace(s, states_.size());
    if (fresh) {
      states_.push_back(&it->first);
      origins_.push_back({from, actor});
    }
    return it->second;
  }

  // Adds all successors. On a violation, the state that shows it is the last one added.
  const char* expand(size_t at) {
    for (unsigned actor = 0; actor < Model::kActors; actor++) {
      State next = *states_[at];
      const char* wrong = nullptr;
      if (!model_.step(next, actor, &wrong)) continue;
      if (!wrong) wrong = model_.check(next);
      if (!wrong && model_.done(next)) wrong = model_.check_done(next);
      if (wrong) {
        states_.push_back(&index_.emplace(next, kNone).first->first);
        origins_.push_back({at, actor});
        return wrong;
      }
      edges_.push_back({at, visit(next, actor, at)});
    }
    return nullptr;
  }

  // A state from which no final state can be reached. Searches backwards from all final states.
  size_t find_stuck() {
    std::vector<std::vector<uint32_t>> before(states_.size());
    for (auto [from, to] : edges_) before[to].push_back(static_cast<uint32_t>(from));
    std::vector<bool> good(states_.size());
    std::vector<size_t> work;
    for (size_t i = 0; i < states_.size(); i++) {
      if (model_.done(*states_[i])) work.push_back(i);
    }
    while (!work.empty()) {
      size_t i = work.back();
      work.pop_back();
      if (good[i]) continue;
      good[i] = true;
      work.insert(work.end(), before[i].begin(), before[i].end());
    }
    for (size_t i = 0; i < good.size(); i++) {
      if (!good[i]) return i;
    }
    return kNone;
  }

  Outcome fail(const char* what, size_t at) {
    Outcome outcome;
    outcome.states = states_.size();
    outcome.violation = what;
    for (; origins_[at].actor != kNoActor; at = origins_[at].from) {
      outcome.trace = model_.describe(*states_[at], origins_[at].actor) + "\n" + outcome.trace;
    }
    return outcome;
  }

  const Model& model_;
  std::unordered_map<State, size_t, Hash, Equal> index_;  // node-based, so that the addresses of states remain valid
  std::vector<const State*> states_;
  std::vector<Origin> origins_;
  std::vector<std::pair<size_t, size_t>> edges_;
};

}  // namespace farside::model
