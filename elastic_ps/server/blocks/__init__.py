"""The blocks that a server holds: values, optimizer states, versions, and the memory behind them."""
