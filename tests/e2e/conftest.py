import signal

# Ignored where nohup runs the tests, and all that they start would inherit it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
