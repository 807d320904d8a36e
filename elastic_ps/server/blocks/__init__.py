"""A server keeps its blocks here: values, optimizer states, versions, and the memory behind them."""
