"""`/admin/monitoring/system`: the machinery, from the stores to the workers."""

from admin.monitoring import fleet_sections, ledger_sections

#: Modules whose import adds the sections that this page shows.
SECTIONS = (fleet_sections, ledger_sections)
