"""What a process is made of, whatever it does: its clock, threads, children, signals, its end and its folders."""
