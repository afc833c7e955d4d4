"""The failover machine: from transitions, ends of processes, plans and pictures to episodes, causes, deaths and recoveries."""
