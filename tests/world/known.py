"""Seeds of `make world-ci` that fail, and what is wrong in each. One that is good again has to be taken out."""

KNOWN = {
    126: "a worker's machine vanishes before the worker has registered, while the job restores: nobody ends it",
    297: "a server whose way to the coordinator is closed for 2 s blames another, and is expelled for that",
}
