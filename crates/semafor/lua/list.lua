-- Lists holders or waiters, one page at a time. Changes nothing: the scripts that sweep remove overdue entries.
--
-- A page shows one moment; the line moves between pages. A waiter's place in line never changes, so the next page begins
-- behind the last waiter of this one: a waiter that stays in line is listed once. Holders have no such order,
-- because heartbeats move their scores; ZSCAN finds a holder that stays at least once; the client drops duplicates.
--
-- ARGV: namespace, 'holders', cursor of ZSCAN
--    or namespace, 'those', member, member, …: holders that did not fit into an earlier reply
--    or namespace, 'waiters', arrival and member of the last one listed, arrival of the last one to list (first: all '')
-- Returns {now, head of the line, next cursor ('0' after the last page), arrival of the last one to list,
--          {member, dead at, end of lease or arrival, record, …}, {members that did not fit}}
local PAGE = 500 -- members
local BYTES = 256 * 1024 -- of records in one reply, plus the record that exceeds it
local LONGEST = 64 * 1024 -- of one record; a longer one is cut, and then its holder's details can't be read

local kind, cursor, last = ARGV[2], '0', ''
local rows, rest, bytes = {}, {}, 0

local function list(member, dead_at, time, record)
    record = string.sub(record or '', 1, LONGEST)
    bytes = bytes + #record
    local n = #rows
    rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = member, dead_at or '', time or '', record
end

-- The rank of the first waiter behind `member`, which came at `arrival` and may be gone.
local function rank_behind(arrival, member)
    local low = call('ZCOUNT', WAITING, '-inf', '(' .. arrival)
    local high = low + call('ZCOUNT', WAITING, arrival, arrival)
    while low < high do
        local middle = math.floor((low + high) / 2)
        if call('ZRANGE', WAITING, middle, middle)[1] <= member then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

if kind == 'waiters' then
    last = ARGV[5]
    if last == '' then
        last = call('ZRANGE', WAITING, -1, -1, 'WITHSCORES')[2] or ''
    end
    local first = ARGV[3] == '' and 0 or rank_behind(ARGV[3], ARGV[4])
    local page = call('ZRANGE', WAITING, first, first + PAGE - 1, 'WITHSCORES')
    cursor = #page == PAGE * 2 and '1' or '0'
    local before
    for i = 1, #page, 2 do
        local member, arrival = page[i], page[i + 1]
        if tonumber(arrival) > tonumber(last) then
            cursor = '0' -- came after the first page
            break
        elseif bytes > BYTES then
            cursor = '1'
            break
        end
        -- The members of a weight stand together: one record is enough for all of them.
        local id = string.match(member, '^[^#]+') or member
        list(member, call('ZSCORE', BEATS, member), arrival, id ~= before and call('HGET', RECORDS, id))
        before = id
    end
else
    local members = {}
    if kind == 'holders' then
        local page = call('ZSCAN', MAIN, ARGV[3], 'COUNT', PAGE)
        cursor = page[1]
        for i = 1, #page[2], 2 do
            members[#members + 1] = page[2][i]
        end
    else
        for i = 3, #ARGV do
            members[#members + 1] = ARGV[i]
        end
    end
    for _, member in ipairs(members) do
        if bytes > BYTES then
            rest[#rest + 1] = member
        else
            local dead_at = call('ZSCORE', MAIN, member)
            if dead_at then
                list(member, dead_at, call('ZSCORE', TTL, member), call('HGET', RECORDS, member))
            end
        end
    end
end
do
    return { NOW_TEXT, call('ZRANGE', WAITING, 0, 0)[1] or '', cursor, last, rows, rest }
end
--- gate ---
