"""CRC-32 as zlib defines it. Every record carries two of them, every record read back checks them.

ISA-L's takes a fifth of the time of the usual zlib's: 0.1 µs instead of 0.5 µs for a record of 300
bytes, 0.2 instead of 3 for one of 4 KiB.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:  # a platform without a wheel
    from zlib import crc32

__all__ = ["crc32"]
