"""The five perspectives on a repository: what an analyst says, how it is scored, how the crew's words become one. Pure.

analyst (agents/analysts) -> one JSON line (wire) -> merged by perspective (merge) -> scores -> the lead's summary (lead)
"""
