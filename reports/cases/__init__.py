"""What the studies of measured cases share: the cases of table `bench`, the measured roofs."""
