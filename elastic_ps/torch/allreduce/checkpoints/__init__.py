"""Workers of a job without servers write what they hold as servers write their blocks, and read it back."""
