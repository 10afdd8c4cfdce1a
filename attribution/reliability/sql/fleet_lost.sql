-- Work lost to infrastructure, first and second order, a row per attempt that lost it.
-- First order: attempts ended by infrastructure. Second order: attempts PREEMPTED by a job that had to start again because
-- infrastructure ended it. Each loses min(its whole runtime, also before the span, $cap_s) x GPUs (half of an hourly checkpoint interval in the paper); a hung attempt also loses the time that it hung.
-- Inputs   views base and everybody (base without its selection: whoever preempted is often of another partition); $cap_s, $near_us (how soon after a preemption the preemptor starts).
-- Output   view lost: is_first, size, end_us, gpu_s, span_gpu_s (of gpu_s, at most the GPU time that the attempt held in the span).
WITH restarted AS (
    SELECT r.cluster, r.job_id, r.start_us, unnest(r.nodes) AS node
    FROM everybody r
    JOIN (SELECT cluster, job_id, attempt FROM everybody WHERE infra AND ended) f
      ON f.cluster = r.cluster AND f.job_id = r.job_id AND f.attempt = r.attempt - 1
    WHERE r.attempt > 1
), preempted AS (
    SELECT b.cluster, b.job_id, b.submit_us, b.end_us, b.size, b.gpu_s AS held_gpu_s, least(b.whole_run_s, $cap_s) * b.gpus AS lost_gpu_s, unnest(b.nodes) AS node
    FROM base b
    WHERE b.state = 'PREEMPTED' AND b.ended
), both_buckets AS (
    SELECT *, start_us / $near_us AS b FROM restarted
    UNION ALL
    SELECT *, start_us / $near_us - 1 AS b FROM restarted
), second_order AS (
    SELECT DISTINCT p.cluster, p.job_id, p.submit_us, p.end_us, p.size, p.held_gpu_s, p.lost_gpu_s
    FROM preempted p
    JOIN both_buckets r
      ON r.cluster = p.cluster AND r.node = p.node AND r.b = p.end_us / $near_us
     AND r.start_us BETWEEN p.end_us - 1000000 AND p.end_us + $near_us AND r.job_id <> p.job_id
), all_lost AS (
    SELECT true AS is_first, size, end_us, gpu_s AS held_gpu_s, least(whole_run_s, $cap_s + hung_s) * gpus AS lost_gpu_s
    FROM base
    WHERE infra AND ended
    UNION ALL
    SELECT false AS is_first, size, end_us, held_gpu_s, lost_gpu_s FROM second_order
)
SELECT is_first, size, end_us, lost_gpu_s AS gpu_s, least(lost_gpu_s, held_gpu_s) AS span_gpu_s FROM all_lost
