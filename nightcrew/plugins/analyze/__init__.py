"""The five analysts: programs that look at the Python files of a git checkout and print one line of JSON (`core.analysis.wire`).

    python -I -m nightcrew.plugins.analyze          in the checkout, with the environment that `parameters` reads

    parameters -> sources (what git tracks, this shard's part) -> one module a perspective -> facts -> the line

The checkout is somebody else's: nothing in it is imported, executed or taken for configuration.
"""
