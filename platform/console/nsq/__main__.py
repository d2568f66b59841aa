import sys

from console.nsq.command import main

sys.exit(main())
