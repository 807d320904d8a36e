"""Plans change the configuration of a job: this package forms, assigns, arms, commits and cancels them."""
