"""python -m linnet"""

from linnet.cli import main

raise SystemExit(main())
