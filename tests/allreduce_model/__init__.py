"""A model checker of jobs without servers: every order of steps, switches, deaths and directives, in small scopes."""
