"""The core decides for a coordinator: `protocol.step` turns a state and an event into the next state and effects."""
