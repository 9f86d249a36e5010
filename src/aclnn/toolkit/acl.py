"""pyACL under the name that it has in CANN. The toolkit's tree contains this file as the module ``acl``."""

import sys

from aclnn.acl import *  # noqa: F403
from aclnn.acl import op, rt, util

for _part, _names in {"op": op, "rt": rt, "util": util}.items():
    sys.modules[f"{__name__}.{_part}"] = _names  # type: ignore[assignment]
