-- Who holds and who waits, without changing anything: what is due is left to those who sweep.
-- ARGV: namespace
-- Returns {now, {member, dead at, …} of holders, {id, end of lease, …}, {member, arrival, …} in line,
--          {member, dead at, …} of waiters, {id, record, …}}
return {
    NOW_TEXT,
    call('ZRANGE', MAIN, 0, -1, 'WITHSCORES'),
    call('ZRANGE', TTL, 0, -1, 'WITHSCORES'),
    call('ZRANGE', WAITING, 0, -1, 'WITHSCORES'),
    call('ZRANGE', BEATS, 0, -1, 'WITHSCORES'),
    call('HGETALL', RECORDS),
}
