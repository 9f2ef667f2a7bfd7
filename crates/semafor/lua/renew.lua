-- Renews a lease: the holder keeps its slot for `ttl` from now.
-- ARGV: namespace, id, ttl (0: no end), for how long another process vouches for the holder (0: its own process asks):
--       a detached holder may have no process that sends heartbeats
-- Returns {'renewed', now} or {'gone', how it ended}
local id, ttl, vouched = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
call('ZREM', MAIN, '') -- so that a server out of memory accepts the other writes: see ping.lua
gate.repair()
gate.sweep()
local record = gate.record_of(id)
if record.slot == NOT_YET or not gate.has_slots(id, record) then
    local ending = record.slot ~= NOT_YET and gate.end_removed(id, record) or gate.ending_of(id)
    gate.save()
    return { 'gone', ending }
end
if gate.is_leaving(record) then
    gate.save()
    return { 'gone', EVICTED }
end
record.ttl = ttl
record.request = record.weight .. ' ' .. ARGV[3] .. ' ' .. record.heartbeat
local lease = math.max(gate.lease_of(record), vouched)
if ttl > 0 then
    gate.set_lease(id, ttl)
else
    call('ZREM', TTL, id)
end
gate.hold_until(id, record, NOW + lease)
gate.write_record(id, record)
gate.due = math.min(gate.due, NOW + lease)
gate.keep(math.max(lease, record.heartbeat, ttl))
gate.keep_all(math.max(lease, ttl))
if vouched > 0 then
    gate.publish(id, 'renewed', id, ARGV[3], NOW_TEXT)
end
gate.save()
return { 'renewed', NOW_TEXT }
