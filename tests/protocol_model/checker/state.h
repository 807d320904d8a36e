// The state of the whole job: nodes, coordinator, channels. Plain bytes, so that it is hashed and copied as it is.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

using u8 = uint8_t;
using u16 = uint16_t;
using u64 = uint64_t;

constexpr int K = 0, W1 = 1, W2 = 2, S1 = 3, S2 = 4, S3 = 5, NODES = 6;
constexpr int BLOCKS = 2, CONFIGURATIONS = 8, STEPS = 4, CAPACITY = 8;
inline const char* const NODE_NAME[NODES] = {"K", "W1", "W2", "S1", "S2", "S3"};
inline bool is_worker(int node) { return node == W1 || node == W2; }
inline bool is_server(int node) { return node >= S1; }
inline u8 bit(int i) { return static_cast<u8>(1 << i); }

enum Kind : u8 {
    NOTHING,
    // data
    PUSH, RELAYED, VALUE, REFUSED, RECORD, ACK, SNAPSHOT_BEGINS, SNAPSHOT, HANDOVER,
    // the coordinator's orders; what nodes tell the coordinator arrives at once, and it decides about it when it likes
    PREPARE, ARM, ADOPT, COMMITTED, CANCEL,
};
inline const char* const KIND_NAME[] = {"-", "PUSH", "RELAYED", "VALUE", "REFUSED", "RECORD", "ACK", "SNAPSHOT_BEGINS",
                                        "SNAPSHOT", "HANDOVER", "PREPARE", "ARM", "ADOPT", "COMMITTED", "CANCEL"};

#pragma pack(push, 1)
// A history says which configuration made each update of a block, three bits each: two different ones are a fork.
using History = u16;

struct Message {
    u8 kind, configuration, block, version;
    History history;  // of the block's value; in a PUSH of the worker's copy of it
    u16 extra;        // PUSH: history of the other block, and the roster of the slice; RECORD: who is to be sent the value; ARM: clock
};

struct Channel {
    u8 count;
    Message messages[CAPACITY];
};

struct Configuration {
    u8 workers;  // a bit each
    u8 owner[BLOCKS], follower[BLOCKS];
    u8 promoted;  // blocks whose owner was chosen among the copies: it owns at once, without a HANDOVER
    u8 dead;      // who died, a bit each, where this is a death's configuration
};

struct Worker {
    u8 alive, configuration, prepared, fenced, armed, clock;
    u8 version, computed, sliced_by;  // sliced_by: configuration by which its samples were chosen
    u8 slab;                          // blocks of the next version that are here
    u8 sender[BLOCKS];                // who sent them
    History own[BLOCKS], next[BLOCKS];
};

enum Role : u8 { NONE, PARTIAL, COPY, OWNER, LEAVING, FROZEN };
inline const char* const ROLE_NAME[] = {"none", "partial", "copy", "owner", "leaving", "frozen"};

struct Block {
    u8 role, version;
    History history;
    u8 streams;  // servers that the owner sends records to
    u8 acked;    // those of them that acknowledged the present version
    u8 handed;   // to whom it was handed over
    Message pushes[2];
};

struct Server {
    u8 alive, configuration, prepared, fenced, armed, clock, cancelled;
    Block blocks[BLOCKS];
};

enum Phase : u8 { IDLE, ASSIGNED, SYNCING, ARMED };

struct Coordinator {
    u8 current, last;           // configuration in force; highest number used
    u8 plan, phase, clock;      // a plan's configuration
    u8 death, base, decided;    // a death's configuration, the one that it builds on, and whether it is decided
    u8 prepared, switched;      // who has answered, of the plan or, once there is one, of the death
    u8 synced[BLOCKS], arrived, guarded;  // servers that have the copy; blocks at their new owner; blocks whose new follower is level
    u8 told_rest;               // the plan's ADOPT went to all
    u8 dead, suspects;          // expelled; who may be expelled
    u8 role[3][BLOCKS], version[3][BLOCKS];  // what servers answered
    u8 seen[BLOCKS];            // highest version that a worker answered
    u8 may_restore, restored;
    u8 faults, resets, restarts;
};

struct State {
    Worker workers[2];
    Server servers[3];
    Coordinator k;
    Configuration configurations[CONFIGURATIONS];
    u8 cut[NODES];  // by sender: to whom nothing arrives
    // what the invariants remember
    History published[BLOCKS][STEPS + 1];  // plus 1, so that 0 says: nothing yet
    u8 seen[BLOCKS];
    Channel channels[NODES][NODES];

    Worker& worker(int node) { return workers[node - W1]; }
    Server& server(int node) { return servers[node - S1]; }
    const Worker& worker(int node) const { return workers[node - W1]; }
    const Server& server(int node) const { return servers[node - S1]; }
    bool alive(int node) const {
        return node == K || (is_worker(node) ? worker(node).alive : server(node).alive);
    }
    u8 fenced(int node) const { return node == K ? k.dead : is_worker(node) ? worker(node).fenced : server(node).fenced; }
};
#pragma pack(pop)

inline History grown(History history, int version, int configuration) {
    return static_cast<History>(history | configuration << (3 * version));
}
inline History up_to(History history, int version) { return static_cast<History>(history & ((1 << (3 * version)) - 1)); }

// The first broken invariant of the action under way; empty while there is none.
extern std::string violation;
inline void fail(const std::string& what) {
    if (violation.empty()) violation = what;
}

void send(State& state, int from, int to, Message message);
void pack(const State& state, std::string& bytes);
void unpack(const std::string& bytes, State& state);
std::string told(const Message& message);
std::string told(const State& state);
