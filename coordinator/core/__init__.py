"""The decisions of a coordinator: `protocol.step` turns a state and an event into the next state and effects. Pure."""
