"""What is done once a day: compaction, materialised answers, retention; and `audit verify`."""
