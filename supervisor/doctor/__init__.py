"""`nightcrew doctor`: looks at the machine and at what nightcrew keeps on it, and mends the little that is safe to mend.

check_context what is looked at: directories, environment, /proc and /sys, the clock (all of it can be a test's)
finding   what a look gives
examine   runs every check, each in its own thread and with a deadline: nothing that hangs or fails ends the rest
software  machine  environments  state  crew      the checks, a group a file
output    findings as text
recovery  a whole ledger, or account, made of a damaged one

It must work when everything else is broken, so no check may rely on another, and a group that cannot even be imported is a finding.
"""
