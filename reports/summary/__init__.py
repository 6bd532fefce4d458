"""The summary and the first screen: verdict, what to do, where the time goes."""
