-- Lets a holder keep its slot for so long from now.
-- ARGV: namespace, id, ttl (0: for as long as it takes)
-- Returns {'renewed', now} or {'gone', how it ended}
local id, ttl = ARGV[2], tonumber(ARGV[3])
sweep()
local record = record_of(id)
if not call('ZSCORE', MAIN, id) or record.slot == NOT_YET then
    save()
    return { 'gone', ending_of(id) }
end
record.ttl = ttl
put(MAIN, id, record.weight, NOW + lease_of(record))
if ttl > 0 then
    call('ZADD', TTL, NOW + ttl, id)
    extend(TTL, math.ceil((ttl + SPARE) * 1000))
else
    call('ZREM', TTL, id)
end
write_record(id, record)
keep(math.max(record.heartbeat, ttl))
save()
return { 'renewed', now_text() }
