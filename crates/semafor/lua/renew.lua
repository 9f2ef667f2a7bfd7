-- Lets a holder keep its slot for so long from now.
-- ARGV: namespace, id, ttl (0: for as long as it takes), for how long another process vouches for it: it may have none of
--       its own that gives signs of life
-- Returns {'renewed', now} or {'gone', how it ended}
local id, ttl, vouched = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
gate.sweep()
local record = gate.record_of(id)
if not gate.has_all(MAIN, id, record.weight) or record.slot == NOT_YET then
    local ending = record.slot ~= NOT_YET and gate.write_off(id, record) or gate.ending_of(id)
    gate.save()
    return { 'gone', ending }
end
if gate.is_leaving(record) then
    gate.save()
    return { 'gone', EVICTED }
end
record.ttl = ttl
record.wish = record.weight .. ' ' .. ARGV[3] .. ' ' .. record.heartbeat
local lease = math.max(gate.lease_of(record), vouched)
gate.put(MAIN, id, record.weight, NOW + lease)
if ttl > 0 then
    call('ZADD', TTL, NOW + ttl, id)
    gate.extend(TTL, ttl + SPARE)
else
    call('ZREM', TTL, id)
end
gate.write_record(id, record)
gate.due = math.min(gate.due, NOW + lease)
gate.keep(math.max(record.heartbeat, ttl))
gate.save()
return { 'renewed', NOW_TEXT }
