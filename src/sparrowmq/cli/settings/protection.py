"""What protects a broker: Apache's settings for that, and addresses that others cannot reach.

Apache's settings are refused rather than ignored, because nothing here does what they ask for. A
server that read `authenticationEnabled=true` and continued without authentication would be open to
everyone who reaches its port, and its operator would believe otherwise.
"""

import re
from ipaddress import ip_address

_NO_USERS = (
    "there is no authentication or authorization yet, so everyone who reaches the port would be"
    " served"
)
_NO_TLS = "there is no TLS yet, so messages would travel as plain text"
_WHY = {
    # 4.x
    "aclenable": _NO_USERS,
    # 5.x
    "authenticationenabled": _NO_USERS,
    "authorizationenabled": _NO_USERS,
    "migrateauthfromv1enabled": _NO_USERS,
    # for the proxy, and names that operators half remember
    "enableaclrpchookforclustermode": _NO_USERS,
    "enableacl": _NO_USERS,
    "authenable": _NO_USERS,
    "authenabled": _NO_USERS,
    "usetls": _NO_TLS,
    "enabletls": _NO_TLS,
}
_TLS = "tls"
"""The prefix of all TLS settings: tls.enable, tls.server.mode, tlsKeyPath …"""
_OFF = frozenset({"", "false", "no", "0", "off", "none", "disabled"})
_REMEDY = (
    "remove it and protect the port by other means (loopback, a firewall, a TLS proxy), or stay"
    " with a broker that has it"
)


def protection_missing(key: str, value: str) -> str:
    """The protection that a setting asks for and that is missing here, and what to do; empty if it
    asks for none. Spellings with dots, dashes and underscores are the same key."""
    plain = re.sub("[._-]", "", key).lower()
    why = _WHY.get(plain) or (_NO_TLS if plain.startswith(_TLS) else "")
    if not why or value.strip().lower() in _OFF:
        return ""
    return f"{why}; {_REMEDY}"


def is_protection(key: str) -> bool:
    """Whether a key configures protection, whatever its value."""
    return bool(protection_missing(key, "true"))


def is_exposed(host: str) -> bool:
    """Whether other machines may reach a server that listens on this host."""
    try:
        return host != "localhost" and not ip_address(host).is_loopback
    except ValueError:
        return True


def is_wildcard(host: str) -> bool:
    """Whether a host means "every address of this machine", which clients cannot connect to."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


EXPOSED = (
    "which other machines can reach, and there is no authentication yet; must be 127.0.0.1 or"
    " another address of this machine alone, unless --insecure is given"
)
"""Why a server must not listen on an exposed host."""
