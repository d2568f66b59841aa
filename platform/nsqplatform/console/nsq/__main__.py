import sys

from nsqcommand.command import main

sys.exit(main())
