"""`nightcrew capacity`: what this crew carries now, and with `--what-if` what other limits, machines and purses would."""
