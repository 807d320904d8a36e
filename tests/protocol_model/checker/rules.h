// The rules of the protocol, each of which can be taken away: the checker must then find a counterexample.
#pragma once
#include <string>
#include <vector>

struct Rules {
    bool acked_values = true;       // a new version goes to nobody before the block's follower has acknowledged it
    bool acked_answers = true;      // nor as the answer to a push that comes again after the update
    bool server_fence = true;       // a server that prepares a death takes nothing from the dead any more
    bool worker_fence = true;       // so does a worker
    bool empty_slab = true;         // a worker that prepares a death forgets values that the dead sent and that it has not installed
    bool all_prepared = true;       // the coordinator decides a death when all survivors have answered, workers too
    bool version_check = true;      // it promotes no copy that is behind a version that a worker has seen
    bool highest_copy = true;       // it promotes the copy of the highest version, not the one that the configuration names
    bool living_owner = true;       // but never one before the owner itself, where it lives
    bool ask_for_owner = true;      // a new owner that has its HANDOVER stays the owner when the old one dies
    bool record_by_version = true;  // records and hand-overs are judged by (block, version), not by configuration
    bool value_by_version = true;   // so are values
    bool release_on_adopt = true;   // an owner waits no longer for a follower that its configuration does not name
    bool acked_handover = true;     // an owner hands over a version that the next configuration's follower has acknowledged
    bool keep_copies = true;        // who loses a block keeps its copy until COMMITTED
    bool commit_on_arrival = true;  // COMMITTED needs the HANDOVER at each new owner
    bool commit_when_acked = true;  // COMMITTED needs a new follower's ACK of the owner's version, after the owner's switch
    bool whole_snapshot = true;     // a follower keeps its old copy until the new snapshot is whole
    bool snapshot_on_reconnect = true;  // a stream that broke begins again with a snapshot of now
    bool synced_by_plan = true;     // SYNCED names the plan that the snapshot was made for; another plan's does not count
    bool answers_itself = true;     // chain: a head whose stream broke answers the pushes of that update itself, after the ACK
    bool push_on_reconnect = true;  // a worker pushes its open exchange again to a server that it lost and found
    bool hold_unknown = true;       // a snapshot for a configuration that is not prepared here yet is held
    bool named_copies = true;       // no copy is taken or promoted that no configuration in force names
    bool owner_takes_no_record = true;  // an owner neither applies nor acknowledges records of its own block
    bool protected_when_committed = true;  // a block counts as protected when its plan is COMMITTED, not when it is SYNCED
    bool repeat_arrived = true;     // a server that switches says again which blocks it was handed
    bool journal_decision = true;   // who owns what after a death is journalled before anybody is told
    bool keep_promoted = true;      // a death that builds on a decided one keeps whom that one promoted
    bool drop_pushes = true;        // a server that adopts a configuration drops what was pushed for older ones
};

struct RuleName {
    const char* name;
    bool Rules::*rule;
};

inline const std::vector<RuleName>& rule_names() {
    static const std::vector<RuleName> names = {
        {"acked_values", &Rules::acked_values},
        {"acked_answers", &Rules::acked_answers},
        {"server_fence", &Rules::server_fence},
        {"worker_fence", &Rules::worker_fence},
        {"empty_slab", &Rules::empty_slab},
        {"all_prepared", &Rules::all_prepared},
        {"version_check", &Rules::version_check},
        {"highest_copy", &Rules::highest_copy},
        {"living_owner", &Rules::living_owner},
        {"ask_for_owner", &Rules::ask_for_owner},
        {"record_by_version", &Rules::record_by_version},
        {"value_by_version", &Rules::value_by_version},
        {"release_on_adopt", &Rules::release_on_adopt},
        {"acked_handover", &Rules::acked_handover},
        {"keep_copies", &Rules::keep_copies},
        {"commit_on_arrival", &Rules::commit_on_arrival},
        {"commit_when_acked", &Rules::commit_when_acked},
        {"whole_snapshot", &Rules::whole_snapshot},
        {"snapshot_on_reconnect", &Rules::snapshot_on_reconnect},
        {"synced_by_plan", &Rules::synced_by_plan},
        {"answers_itself", &Rules::answers_itself},
        {"push_on_reconnect", &Rules::push_on_reconnect},
        {"hold_unknown", &Rules::hold_unknown},
        {"named_copies", &Rules::named_copies},
        {"owner_takes_no_record", &Rules::owner_takes_no_record},
        {"protected_when_committed", &Rules::protected_when_committed},
        {"repeat_arrived", &Rules::repeat_arrived},
        {"journal_decision", &Rules::journal_decision},
        {"keep_promoted", &Rules::keep_promoted},
        {"drop_pushes", &Rules::drop_pushes},
    };
    return names;
}

// What is explored: the size of the job, the plan, and which faults may happen.
struct Scope {
    int blocks = 1;
    int steps = 2;
    int clock_low = 0, clock_high = 0;  // clocks with which the coordinator may arm its plan
    std::string plan = "none";
    bool chain = false;       // chain replication: the follower sends the values
    bool slow_compute = false;  // a gradient takes time: a worker may switch before it has one
    bool overlap = false;     // a second fault at any moment; the job may then go back to its checkpoint
    bool reprotect = false;   // after a death the coordinator makes followers again
    int faults = 0;           // crashes, cuts and false deaths in all; a second one only when all blocks are protected
    int resets = 0;           // connections that break, are empty, and come back
    int restarts = 0;         // how often the coordinator is killed and started from its journal
    int crash = 0;            // nodes that may crash, a bit each
    int falsely = 0;          // nodes that the coordinator may lose, while their peers still reach them
    std::vector<std::pair<int, int>> cuts;         // directions between nodes on which messages may be lost for ever
    std::vector<std::pair<int, int>> reset_pairs;  // connections that may be reset
};

extern Rules rules;
extern Scope scope;
