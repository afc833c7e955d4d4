"""The parts of any process here: its clock, threads, children, signals, its end and its folders."""
