"""Many runs: settings and a folder to a result, in turn, in several processes, or on a cluster."""

from linnet.launch.job import Job as Job
from linnet.launch.job import Outcome as Outcome
from linnet.launch.jobs import run_jobs as run_jobs
