from hetsched.plans import *  # noqa: F403
from hetsched.plans import Status  # noqa: F401
