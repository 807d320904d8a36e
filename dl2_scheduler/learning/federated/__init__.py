"""Clusters of one owner learn together: each tells what it found out, and judges by itself what others tell (DL2, 6.6).

In the paper clusters send gradients to one global policy. Here each keeps a policy of its own, and a judge that lets
others' policies decide only where they win in worlds that agree with its own history.
"""
