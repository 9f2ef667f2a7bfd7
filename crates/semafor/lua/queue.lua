-- Takes slots, or a place in line. One trip when slots are free.
-- ARGV: namespace, id, weight, ttl (0: none), heartbeat, who, 'wait' or 'try', slots, opened (0 or 1), epoch,
--       bound of the line (-1: as it is), again (1 if the answer to the same call may have been lost),
--       arrival (0: now; else the score of a place that the server has lost)
-- Returns {'granted', slots, epoch, slot, token, waited, now}
--      or {'queued', slots, epoch, arrival, now, next deadline, foreign holders}
--      or {'busy', slots, epoch, held, waiting}, {'full', limit}, {'too_heavy', slots}, {'closed'}, and what open.lua returns.

-- The short way: a slot is free, nobody waits for it, nothing is due, and nothing else is in question.
if #info >= BITS and ARGV[3] == '1' and ARGV[9] == '1' and ARGV[12] == '0' then
    local limit, closed, epoch, fence, ours, keep_until, due, unwanted, granted, released, hold_total, hold_max, wait_total,
        wait_max = struct.unpack(SHORT, info)
    local held, ttl, heartbeat = call('ZCARD', MAIN), tonumber(ARGV[4]), tonumber(ARGV[5])
    local lease = ttl > 0 and math.min(ttl, heartbeat) or heartbeat
    local is_plain = held < limit and held <= ours and NOW < due and closed == 0 and epoch == tonumber(ARGV[10])
        and NOW >= unwanted + LATE and NOW + math.max(ttl, heartbeat) < keep_until and (ttl == 0 or held == 0)
    local slot, bits = occupy(string.sub(info, BITS))
    if is_plain and slot < limit and call('ZCARD', WAITING) == 0 then
        -- The time in microseconds, if it has moved on since the last.
        local token, token_text = SECONDS * 1000000 + MICROS, SECONDS .. MICROS
        if token <= fence then
            token, token_text = fence + 1, string.format('%.0f', fence + 1)
        end
        local expiry = math.ceil((keep_until - NOW + SPARE) * 1000)
        call('HSET', RECORDS, ARGV[2], '1 ' .. ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. NOW_TEXT .. ' ' .. slot .. ' '
            .. token_text .. ' 0 ' .. ARGV[6])
        call('ZADD', MAIN, NOW + lease, ARGV[2])
        if held == 0 then
            call('PEXPIRE', MAIN, expiry)
        end
        if ttl > 0 then
            call('ZADD', TTL, NOW + ttl, ARGV[2])
            call('PEXPIRE', TTL, expiry)
        end
        call('SET', INFO, struct.pack(SHORT, limit, closed, epoch, token, ours + 1, keep_until, math.min(due, NOW + lease),
            unwanted, granted + 1, released, hold_total, hold_max, wait_total, wait_max) .. string.sub(info, REST, BITS - 1)
            .. bits, 'KEEPTTL')
        return { 'granted', limit, epoch, slot, token, '0', NOW_TEXT }
    end
end

--- gate ---

local id, weight, is_open, epoch = ARGV[2], tonumber(ARGV[3]), ARGV[9] == '1', tonumber(ARGV[10])
local is_again = ARGV[12] == '1'
local record = {
    is_ours = true,
    wish = ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[5],
    weight = weight,
    ttl = tonumber(ARGV[4]),
    heartbeat = tonumber(ARGV[5]),
    since = NOW,
    slot = NOT_YET,
    token = 0,
    waited = 0,
    who = ARGV[6],
}

local function granted(to)
    gate.save()
    return { 'granted', gate.limit, gate.epoch, to.slot, to.token, tostring(to.waited), NOW_TEXT }
end

local function queued(arrival)
    gate.save()
    local place = string.format('%.6f', arrival)
    return { 'queued', gate.limit, gate.epoch, place, NOW_TEXT, gate.next_deadline(), gate.has_foreign_holders() }
end

local function refused(...)
    gate.refused = gate.refused + 1
    gate.save()
    return { ... }
end

gate.check_types()
if NOW >= gate.due or gate.held > gate.ours then
    gate.sweep()
end
if is_again then
    -- Never twice: not two slots, not a slot and a place.
    local known = gate.record_of(id)
    if known.is_ours then
        if gate.has_all(MAIN, id, known.weight) then
            gate.adopt(id, known)
            gate.put(MAIN, id, known.weight, NOW + gate.lease_of(known))
            return granted(known)
        end
        local score = call('ZSCORE', WAITING, gate.member_of(id, known.weight - 1))
        if score then
            return queued(tonumber(score))
        end
        gate.write_off(id, known)
    end
end

local wrong = gate.enter(tonumber(ARGV[8]), is_open, epoch, tonumber(ARGV[11]))
if wrong then
    if wrong[1] == 'closed' then
        return refused('closed')
    end
    gate.save()
    return wrong
end

if gate.ending_of(id) == UNWANTED then
    -- It comes after its own end: it was held up on the way.
    return refused('closed')
end
if weight > gate.limit then
    return refused('too_heavy', gate.limit)
end
if gate.is_line_empty and gate.limit - gate.held >= weight then
    gate.grant_at_once(id, record)
    return granted(record)
end
if ARGV[7] == 'try' then
    return refused('busy', gate.limit, gate.epoch, gate.held, #gate.ids_in_line())
end

local arrival = tonumber(ARGV[13])
local is_back = arrival > 0
if not is_back then
    local bound = gate.max_waiting - 1
    if bound >= 0 and call('ZCARD', WAITING) >= bound and #gate.ids_in_line() >= bound then
        return refused('full', bound)
    end
    -- Behind everybody, also behind those whose clocks are fast.
    local last = call('ZRANGE', WAITING, -1, -1, 'WITHSCORES')[2]
    arrival = last and math.max(NOW, tonumber(last) + 0.000001) or NOW
end

record.since = math.min(arrival, NOW)
gate.put(WAITING, id, weight, arrival)
gate.put(BEATS, id, weight, NOW + record.heartbeat)
gate.write_record(id, record)
if gate.is_line_empty then
    gate.keep_new(WAITING, record.heartbeat)
    gate.keep_new(BEATS, record.heartbeat)
end
gate.is_line_empty = false
gate.due = math.min(gate.due, NOW + record.heartbeat)
gate.queued = gate.queued + 1
gate.keep(math.max(record.heartbeat, record.ttl))
if is_back or gate.limit > gate.held then
    -- It may be the first; or a client of another library is, and has not served itself yet.
    gate.serve()
    local known = gate.record_of(id)
    if known.slot ~= NOT_YET then
        return granted(known)
    end
end
return queued(arrival)
