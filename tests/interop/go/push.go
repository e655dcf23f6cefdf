package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// pushConsumers by name. They remember what came; "fails" makes them refuse a body so many times,
// and one that "hangs" on a body keeps it until it is stopped.
type pushConsumers struct {
	byName    map[string]*member
	producers *producers
}

type member struct {
	consumer rocketmq.PushConsumer
	command  command
	guard    sync.Mutex
	news     chan struct{}
	received []any
	refused  map[string]int64
	stopping chan struct{}
}

func newPushConsumers(producers *producers) *pushConsumers {
	return &pushConsumers{byName: map[string]*member{}, producers: producers}
}

func (p *pushConsumers) register(ops map[string]operation) {
	ops["push_start"] = p.start
	ops["push_received"] = func(c command) (any, error) {
		return p.byName[c.text("name", "")].wait(int(c.number("count", 0)), c.timeout(), int(c.number("from", 0))), nil
	}
	ops["push_suspend"] = func(c command) (any, error) {
		p.byName[c.text("name", "")].consumer.Suspend()
		return nil, nil
	}
	ops["push_resume"] = func(c command) (any, error) {
		p.byName[c.text("name", "")].consumer.Resume()
		return nil, nil
	}
	ops["push_stop"] = func(c command) (any, error) {
		m := p.byName[c.text("name", "")]
		close(m.stopping)
		return nil, m.consumer.Shutdown()
	}
}

var startingPoints = map[string]consumer.ConsumeFromWhere{
	"CONSUME_FROM_LAST_OFFSET":  consumer.ConsumeFromLastOffset,
	"CONSUME_FROM_FIRST_OFFSET": consumer.ConsumeFromFirstOffset,
	"CONSUME_FROM_TIMESTAMP":    consumer.ConsumeFromTimestamp,
}

func (p *pushConsumers) options(c command) []consumer.Option {
	options := []consumer.Option{
		consumer.WithNameServer(c.nameServer()),
		consumer.WithGroupName(c.text("group", "")),
		consumer.WithInstance(c.text("name", "")),
		consumer.WithVIPChannel(c.flag("vip_channel")),
		consumer.WithConsumerOrder(c.flag("orderly")),
		consumer.WithConsumeFromWhere(startingPoints[c.text("from_where", "CONSUME_FROM_LAST_OFFSET")]),
		consumer.WithMaxReconsumeTimes(int32(c.number("max_reconsume_times", -1))),
		consumer.WithSuspendCurrentQueueTimeMillis(200 * time.Millisecond),
	}
	if c.text("model", "CLUSTERING") == "BROADCASTING" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if stamp := c.text("from_timestamp", ""); stamp != "" {
		options = append(options, consumer.WithConsumeTimestamp(stamp))
	}
	return options
}

func (p *pushConsumers) start(c command) (any, error) {
	made, err := rocketmq.NewPushConsumer(p.options(c)...)
	if err != nil {
		return nil, err
	}
	m := &member{consumer: made, command: c, news: make(chan struct{}, 1), refused: map[string]int64{}, stopping: make(chan struct{})}
	by := consumer.MessageSelector{Type: consumer.TAG, Expression: c.text("tags", "*")}
	if sql := c.text("sql", ""); sql != "" {
		by = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	err = made.Subscribe(c.text("topic", ""), by,
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			return m.took(ctx, p.producers, messages), nil
		})
	if err != nil {
		return nil, err
	}
	p.byName[c.text("name", "")] = m
	return nil, made.Start()
}

func (m *member) took(ctx context.Context, producers *producers, messages []*primitive.MessageExt) consumer.ConsumeResult {
	good := true
	fails, _ := m.command["fails"].(map[string]any)
	for _, message := range messages {
		body := shown(message.Body)
		m.guard.Lock()
		m.refused[body]++
		good = good && m.refused[body] > command(fails).number(body, 0)
		m.received = append(m.received, received(message))
		m.guard.Unlock()
		select {
		case m.news <- struct{}{}:
		default:
		}
		if body == m.command.text("hangs", "") {
			m.hang()
		}
		if name := m.command.text("reply_producer", ""); name != "" {
			answer := []byte("reply to " + body)
			reply, err := consumer.CreateReplyMessage(message, answer)
			if err == nil {
				reply.Body = answer // 2.1.2 takes the body for properties and sends none
				_, err = producers.byName[name].SendSync(ctx, reply)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "no reply:", err)
			}
		}
	}
	if good {
		return consumer.ConsumeSuccess
	}
	if m.command.flag("orderly") {
		return consumer.SuspendCurrentQueueAMoment
	}
	if concurrent, known := primitive.GetConcurrentlyCtx(ctx); known {
		concurrent.DelayLevelWhenNextConsume = int(m.command.number("retry_level", 0))
	}
	return consumer.ConsumeRetryLater
}

func (m *member) hang() {
	<-m.stopping
}

// wait until so many came, or the time is over, and answer what came after "from".
func (m *member) wait(count int, timeout time.Duration, from int) []any {
	deadline := time.After(timeout)
	for {
		m.guard.Lock()
		have := append([]any{}, m.received...)
		m.guard.Unlock()
		if len(have) >= count || timeout == 0 {
			return have[min(from, len(have)):]
		}
		select {
		case <-m.news:
		case <-deadline:
			return have[min(from, len(have)):]
		}
	}
}
