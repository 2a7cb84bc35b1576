"""`nightcrew doctor`: look at the machine and at what nightcrew keeps on it, and mend the little that is safe to mend.

examine                   what the checks look at (all of it can be a test's); run every check with a deadline; print the findings
machine, state, crew      the checks, and the recovery of the ledger and the account

It must work when everything else is broken, so no check may rely on another, and a group that cannot even be imported is a finding.
"""
