-- Give back some slots of a window. Uses: slots.
-- KEYS: leases, counts. ARGV: token, how many.
-- Returns how many the window still holds; 0 also for a lease that is over.
return slots_give_back(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]))
