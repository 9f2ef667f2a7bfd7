-- Takes slots, or a place in line. One round trip when slots are free.
-- ARGV: namespace, id, weight, ttl (0: none), heartbeat, grace (how long it keeps its slot after an eviction; 0: not at
--       all), who (details about the process), 'wait' or 'try', slots, opened (0 or 1), epoch, bound of the line (-1:
--       unchanged), again (1 if the reply to the same call may have been lost), arrival (0: now; else the score of a
--       place in line that the server has lost), largest fencing token that the process has seen: the server may have
--       forgotten it
-- Returns {'granted', slots, epoch, slot, token, waited, now, python clients (see gate.python_clients),
--               end of lease (if it was granted before)}
--      or {'queued', slots, epoch, arrival, now, next deadline, python clients}
--      or {'busy', slots, epoch, held, waiting}, {'full', bound}, {'too_heavy', slots}, {'unseen', largest weight},
--      {'closed'}, or a refusal as in open.lua.

-- The fast path: one slot is asked for and free, the line is empty, nothing is due, and nothing needs repair.
if #info >= BITS and ARGV[3] == '1' and ARGV[10] == '1' and ARGV[13] == '0' then
    --- unpack short INFO ---
    local held, ttl, heartbeat = call('ZCARD', MAIN) + hidden, tonumber(ARGV[4]), tonumber(ARGV[5])
    --- lease ---
    local is_plain = held < slots and held == ours and NOW < due and closed == 0 and epoch == tonumber(ARGV[11])
        and NOW >= unwanted + LATE and NOW + math.max(ttl, heartbeat) < keep_until and (ttl == 0 or held == 0)
        -- No key was lost, and no script of Python's cut an expiry: gate.repair would have nothing to do.
        and call('HLEN', RECORDS) == call('ZCARD', OWN) + 1
        and (held == 0 or call('PTTL', MAIN) >= (keep_until - NOW) * 1000)
    local slot, bits = slots, nil
    if is_plain then
        slot, bits = occupy(string.sub(info, BITS))
    end
    if slot < slots and call('ZCARD', WAITING) == 0 then
        -- The token is the time in microseconds, if that is larger than the last token.
        local token, token_text = SECONDS * 1000000 + MICROS, SECONDS .. MICROS
        local newest = math.max(fence, tonumber(ARGV[15]))
        if token <= newest then
            token, token_text = newest + 1, string.format('%.0f', newest + 1)
        end
        local expiry = math.ceil((keep_until - NOW + SPARE) * 1000)
        --- local record: weight='1' ttl=ARGV[4] heartbeat=ARGV[5] since=NOW_TEXT slot token=token_text waited='0' grace=ARGV[6] who=ARGV[7] ---
        call('HSET', RECORDS, ARGV[2], record)
        call('ZADD', MAIN, NOW + lease, ARGV[2])
        call('ZADD', OWN, NOW + lease, ARGV[2])
        if held == 0 then
            call('PEXPIRE', MAIN, expiry)
            call('PEXPIRE', OWN, expiry)
        end
        if ttl > 0 then
            call('ZADD', TTL, NOW + ttl, ARGV[2])
            call('PEXPIRE', TTL, expiry)
        end
        fence, ours, due, granted = token, ours + 1, math.min(due, NOW + lease), granted + 1
        --- pack short INFO ---
        call('SET', INFO, packed .. string.sub(info, REST, BITS - 1) .. bits, 'KEEPTTL')
        return { 'granted', slots, epoch, slot, token, '0', NOW_TEXT, NOW < shared + KEPT and 2 or 0 }
    end
end

--- gate ---

local id, weight, is_open, epoch = ARGV[2], tonumber(ARGV[3]), ARGV[10] == '1', tonumber(ARGV[11])
local is_again = ARGV[13] == '1'
local floor = tonumber(ARGV[15])
local record = {
    is_ours = true,
    request = ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[5],
    weight = weight,
    ttl = tonumber(ARGV[4]),
    heartbeat = tonumber(ARGV[5]),
    since = NOW,
    slot = NOT_YET,
    token = 0,
    waited = 0,
    grace = tonumber(ARGV[6]),
    who = ARGV[7],
}

local function granted(to, ends)
    gate.save()
    return { 'granted', gate.slots, gate.epoch, to.slot, to.token, tostring(to.waited), NOW_TEXT,
        gate.python_clients(), ends }
end

local function queued(arrival)
    gate.save()
    local place = string.format('%.17g', arrival) -- exact: the waiter may have to return to this place
    return { 'queued', gate.slots, gate.epoch, place, NOW_TEXT, gate.next_deadline(), gate.python_clients() }
end

local function refused(...)
    gate.refused = gate.refused + 1
    gate.save()
    return { ... }
end

gate.check_types()
gate.fence = math.max(gate.fence, floor)
gate.repair()
if NOW >= gate.due or gate.held ~= gate.ours then
    gate.sweep()
end
if is_again and gate.slots == 0 then
    -- The server has forgotten how many slots there are.
    local wrong = gate.open(tonumber(ARGV[9]), is_open, epoch, tonumber(ARGV[12]))
    if wrong then
        gate.save()
        return wrong
    end
end
local known, ending = gate.record_of(id), gate.remembered(id)
if ending == UNWANTED or ending and not is_again and not known.is_ours then
    -- The request was delayed, and arrives after its own repetition or cancellation has ended.
    return refused('closed')
end
if is_again then
    gate.remember(id, REPEATED)
    gate.unwanted = NOW
end
if is_again or known.is_ours then
    -- A request that arrives twice never gets two slots, nor a slot and a place in line.
    if not known.is_ours and (call('ZSCORE', MAIN, id)
        or call('ZSCORE', WAITING, gate.member_of(id, gate.parts_of(weight) - 1))) then
        -- Its record was lost. This call has everything that was in it.
        known = record
        known.since = tonumber(ARGV[14]) > 0 and math.min(tonumber(ARGV[14]), NOW) or NOW
        gate.write_record(id, known)
        gate.track_own(id, known, NOW + known.heartbeat)
        gate.line_extra = gate.line_extra + gate.parts_of(weight) - 1
    end
    if known.is_ours then
        local ends = gate.has_slots(id, known) and gate.confirm(id, known, floor)
        if ends then
            return granted(known, ends)
        end
        local score = call('ZSCORE', WAITING, gate.member_of(id, gate.parts_of(known.weight) - 1))
        if score then
            return queued(tonumber(score))
        end
        gate.end_removed(id, known)
    end
end

local wrong = gate.open(tonumber(ARGV[9]), is_open, epoch, tonumber(ARGV[12]))
if wrong then
    if wrong[1] == 'closed' then
        return refused('closed')
    end
    gate.save()
    return wrong
end
if weight > gate.slots then
    return refused('too_heavy', gate.slots)
end
if weight > VISIBLE and (gate.has_python_clients() or gate.python_clients() > 0) then
    -- Python's clients that were here recently may come back, and would count the slots that they do not see as free.
    return refused('unseen', VISIBLE)
end
if gate.is_line_empty and gate.slots - gate.held >= weight then
    gate.grant_at_once(id, record)
    return granted(record)
end
if ARGV[8] == 'try' then
    return refused('busy', gate.slots, gate.epoch, gate.held, gate.waiting())
end

local arrival = tonumber(ARGV[14])
local is_back = arrival > 0
if not is_back then
    local bound = gate.max_waiting - 1
    if bound >= 0 and gate.waiting() >= bound then
        return refused('full', bound)
    end
    -- Behind all waiters, also behind those whose clocks are fast.
    local last = call('ZRANGE', WAITING, -1, -1, 'WITHSCORES')[2]
    arrival = last and math.max(NOW, tonumber(last) + 0.000001) or NOW
end

record.since = math.min(arrival, NOW)
gate.put(WAITING, id, weight, arrival)
gate.put(BEATS, id, weight, NOW + record.heartbeat)
gate.track_own(id, record, NOW + record.heartbeat)
gate.line_extra = gate.line_extra + gate.parts_of(weight) - 1
gate.write_record(id, record)
gate.keep_if_new(WAITING, record.heartbeat)
gate.keep_if_new(BEATS, record.heartbeat)
gate.is_line_empty = false
gate.due = math.min(gate.due, NOW + record.heartbeat)
gate.queued = gate.queued + 1
gate.keep(math.max(record.heartbeat, record.ttl))
if is_back or gate.slots > gate.held then
    -- It may be the first in line; or a client of Python is, and has not served itself yet.
    gate.serve()
    local known = gate.record_of(id)
    if known.slot ~= NOT_YET then
        return granted(known)
    end
end
return queued(arrival)
