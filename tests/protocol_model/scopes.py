"""The scopes that are explored: the hard cases, small ones for every test run, and for each rule one that needs it."""

PLANS = ("move", "move-back", "promote", "swap", "refollow")
"""How the configuration changes meanwhile: see the README."""

BETWEEN_SERVERS = "S1>S2,S2>S1,S1>S3,S3>S1,S2>S3,S3>S2"

CASES = {
    "1 follower dead while its owner waits": [
        "blocks=2 steps=3 slow=1 crash=S2",
        "blocks=2 steps=3 slow=1 lose=S2",
        "blocks=2 steps=3 crash=S2,S3 reset=all",
        "blocks=2 steps=3 crash=S2 restarts=1",
    ],
    "2 owner of a moving block dead while ARMED": [
        *(f"plan={plan} clocks=0-2 crash=W1,W2,S1,S2,S3" for plan in PLANS),
        *(f"plan={plan} clocks=1-1 lose=S1,S2,S3" for plan in PLANS),
        *(f"plan={plan} clocks=0-0 crash=S1 reset=S1>S2,S1>S3,S2>S3" for plan in PLANS),
        *(f"plan={plan} clocks=0-0 crash=S1,S2,S3 restarts=1" for plan in PLANS),
    ],
    "3 owner dead between record and acknowledgement": [
        "blocks=2 steps=3 slow=1 crash=S1",
        "blocks=2 steps=2 crash=S1,S2,S3,W1,W2 reset=all",
        "blocks=2 steps=2 crash=S1,S2,S3,W1,W2 restarts=1",
    ],
    "4 owner and follower cut off in one direction": [
        f"blocks=2 steps=3 cut={BETWEEN_SERVERS}",
        "blocks=2 steps=2 cut=all",
        *(
            f"plan={plan} clocks=0-0 cut={way}"
            for plan in PLANS
            for way in ("S1>S2,S2>S1", "S1>S3,S3>S1", "S2>S3,S3>S2")
        ),
    ],
    "5 an expelled owner lives and serves its host": [
        "blocks=2 steps=3 lose=S1,S2,S3",
        "blocks=2 steps=2 slow=1 lose=S1,S2,S3,W1,W2",
        "blocks=2 steps=2 lose=S1,W1 reset=all",
    ],
    "6 a second fault, when all is protected again": [
        "steps=3 crash=S1,S2,S3 faults=2 reprotect=1",
        "steps=2 crash=S1,S2,S3,W1,W2 lose=S1,S2,S3 faults=2 reprotect=1 restarts=1",
        "blocks=2 steps=2 crash=S1,S2,S3 faults=2 reprotect=1",
        "plan=move crash=S1,S2,S3 faults=2 reprotect=1",
        "plan=refollow crash=S1,S2,S3 faults=2 reprotect=1",
    ],
    "7 faults that overlap: at most a restore": [
        "blocks=2 crash=S1,S2,S3,W1 faults=2 overlap=1",
        "crash=S1,S2,S3,W1 lose=S1,S2,S3 faults=2 overlap=1 reprotect=1",
        "crash=S1,S2,S3 faults=2 overlap=1 reprotect=1 restarts=1",
        *(f"plan={plan} crash=S1,S2,S3 faults=2 overlap=1" for plan in PLANS),
    ],
    "8 chain replication": [
        "chain=1 blocks=2 steps=3 crash=S1,S2,S3 reset=all",
        "chain=1 blocks=2 steps=2 lose=S1,S2,S3",
        f"chain=1 blocks=2 steps=2 cut={BETWEEN_SERVERS}",
        *(f"chain=1 plan={plan} clocks=0-0 crash=S1,S2,S3" for plan in PLANS),
        "chain=1 crash=S1,S2,S3 faults=2 reprotect=1 restarts=1",
    ],
    "9 two blocks and a plan": [
        "blocks=2 steps=1 plan=both crash=S1",
        "blocks=2 steps=1 plan=move crash=S1 clocks=1-1",
        "blocks=2 steps=1 plan=swap crash=S1,S2,S3",
        "blocks=2 steps=1 plan=refollow lose=S1",
    ],
}
"""The hard cases of the design at full size: seconds to minutes, and up to 8 GB, each."""

SMALL = (
    "steps=3",
    "blocks=2 steps=3 crash=S1,S2,S3",
    "steps=3 crash=W1,W2,S1,S2,S3 slow=1",
    "cut=all",
    "lose=W1,W2,S1,S2,S3 reset=all",
    "crash=S1,S2,S3 faults=2 reprotect=1",
    "plan=refollow crash=S1",
    "plan=swap crash=S1,S2",
    "plan=move reset=all",
    "chain=1 blocks=2 crash=S1,S2,S3",
    "chain=1 cut=S1>S2,S2>S1",
    "chain=1 reset=all crash=S1,S2",
    "crash=S1,S2,W2 restarts=1",
    "plan=refollow crash=S1 restarts=1",
    "crash=S1,S2,S3,W1 faults=2 overlap=1",
)
"""Scopes of seconds, all of which hold."""

NEEDED = {
    "acked_values": "crash=S1",
    "acked_answers": "plan=refollow crash=S1",
    "server_fence": "lose=S1,S2",
    "server_fence,version_check": "plan=move lose=S1,S3",
    "acked_values,version_check": "lose=S1,S2",
    "server_fence,version_check,owner_takes_no_record": "lose=S1,S2",
    "highest_copy": "plan=refollow crash=S1",
    "living_owner": "plan=move crash=S3 clocks=0-1",
    "ask_for_owner": "plan=promote crash=S1,S2",
    "record_by_version": "plan=refollow crash=S1",
    "release_on_adopt": "crash=S2",
    "acked_handover": "plan=promote",
    "keep_copies": "plan=refollow crash=S1",
    "commit_on_arrival": "plan=move crash=S1",
    "commit_when_acked": "plan=refollow crash=S1 faults=2 reprotect=1",
    "whole_snapshot": "crash=S1,S2 reset=all",
    "snapshot_on_reconnect": "reset=all",
    "push_on_reconnect": "reset=all",
    "answers_itself": "chain=1 reset=all",
    "hold_unknown": "crash=S1,S2,S3 faults=2 reprotect=1",
    "protected_when_committed": "crash=S1,S2,S3 faults=2 reprotect=1",
    "drop_pushes": "crash=W2",
    "worker_fence": "plan=refollow crash=S1,S2 faults=2 overlap=1",
    "all_prepared": "plan=refollow crash=S1,S2 faults=2 overlap=1",
    "version_check": "plan=refollow crash=S1,S2 faults=2 overlap=1",
    "keep_promoted": "plan=swap crash=S2,W1 steps=1 faults=2 overlap=1 restarts=1",
    "synced_by_plan": "crash=S1,S2 faults=2 reprotect=1 restarts=1",
    "repeat_arrived": "plan=swap crash=S1 restarts=1",
    "journal_decision": "crash=S1 restarts=1",
}
"""Rules without which a scope is refuted; several stand for each other where they are named together."""
