#include "search.h"

#include <algorithm>
#include <cstdio>

namespace {

u64 hash_of(const std::string& bytes) {
    u64 hash = 0x9E3779B97F4A7C15ull;
    size_t i = 0;
    for (; i < bytes.size(); i += 8) {
        u64 part = 0;
        std::memcpy(&part, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
        hash = (hash ^ part) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
    }
    hash = (hash ^ bytes.size()) * 0xc4ceb9fe1a85ec53ull;
    hash ^= hash >> 33;
    return hash ? hash : 1;
}

// States that were met, by a hash of 64 bits: two of n states share one with a probability of about n^2 / 2^65.
class Met {
  public:
    Met() : slots_(1 << 20) {}
    bool add(u64 hash) {
        if (count_ * 10 > slots_.size() * 7) grow();
        u64 at = place(hash);
        if (slots_[at]) return false;
        slots_[at] = hash;
        count_++;
        return true;
    }
    u64 count() const { return count_; }

  private:
    u64 place(u64 hash) const {
        u64 at = hash & (slots_.size() - 1);
        while (slots_[at] && slots_[at] != hash) at = (at + 1) & (slots_.size() - 1);
        return at;
    }
    void grow() {
        std::vector<u64> old(slots_.size() * 2);
        old.swap(slots_);
        for (u64 hash : old)
            if (hash) slots_[place(hash)] = hash;
    }
    std::vector<u64> slots_;
    u64 count_ = 0;
};

struct Origin {
    uint32_t parent;
    Action action;
};

std::vector<Action> path_to(const std::vector<Origin>& origins, u64 at) {
    std::vector<Action> path;
    for (; at; at = origins[at].parent) path.push_back(origins[at].action);
    std::reverse(path.begin(), path.end());
    return path;
}

}  // namespace

Result search(u64 most_states) {
    Result result;
    Met met;
    std::deque<std::string> frontier;
    std::vector<Origin> origins{{0, {}}};
    std::string bytes;
    std::vector<Action> actions;
    State first = first_state(), state, next;
    pack(first, bytes);
    met.add(hash_of(bytes));
    frontier.push_back(bytes);
    for (u64 current = 0; !frontier.empty(); current++) {
        unpack(frontier.front(), state);
        frontier.pop_front();
        enabled_actions(state, actions);
        bool moves = false;
        for (Action action : actions) {
            moves = moves || !action.is_fault();
            next = state;
            violation.clear();
            perform(next, action);
            if (!violation.empty()) {
                result.broken = violation;
                result.trace = path_to(origins, current);
                result.trace.push_back(action);
                result.states = met.count();
                return result;
            }
            pack(next, bytes);
            if (!met.add(hash_of(bytes))) continue;
            frontier.push_back(bytes);
            origins.push_back({static_cast<uint32_t>(current), action});
        }
        if (!moves) {
            result.ends++;
            result.broken = check_end(state);
            if (!result.broken.empty()) {
                result.trace = path_to(origins, current);
                result.states = met.count();
                return result;
            }
        }
        if (met.count() > most_states) {
            result.states = met.count();
            return result;
        }
    }
    result.states = met.count();
    result.depth = path_to(origins, origins.size() - 1).size();
    result.complete = true;
    return result;
}

void print_trace(const Result& result) {
    State state = first_state();
    int number = 0;
    for (Action action : result.trace) {
        std::printf("%3d %s\n", ++number, told(state, action).c_str());
        perform(state, action);
    }
    std::printf("%s", told(state).c_str());
}
