package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// pullConsumers by name: pulling from a given offset, and polling with acknowledgement.
type pullConsumers struct {
	byName map[string]rocketmq.PullConsumer
}

func newPullConsumers() *pullConsumers {
	return &pullConsumers{byName: map[string]rocketmq.PullConsumer{}}
}

func (p *pullConsumers) register(ops map[string]operation) {
	ops["pull_start"] = p.start
	ops["pull"] = p.pull
	ops["pull_commit"] = p.commit
	ops["pull_committed"] = func(c command) (any, error) {
		return p.byName[c.text("name", "")].CurrentOffset(c.queue())
	}
	ops["poll"] = p.poll
	ops["pull_stop"] = func(c command) (any, error) {
		return nil, p.byName[c.text("name", "")].Shutdown()
	}
}

func (p *pullConsumers) start(c command) (any, error) {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(c.nameServer()),
		consumer.WithGroupName(c.text("group", "")),
		consumer.WithInstance(c.text("name", "")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	p.byName[c.text("name", "")] = made
	if topic := c.text("topic", ""); topic != "" {
		by := consumer.MessageSelector{Type: consumer.TAG, Expression: c.text("tags", "*")}
		if err := made.Subscribe(topic, by); err != nil {
			return nil, err
		}
	}
	return nil, made.Start()
}

var pullNames = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
	primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
}

func (p *pullConsumers) pull(c command) (any, error) {
	result, err := p.byName[c.text("name", "")].PullFrom(
		context.Background(), c.queue(), c.number("offset", 0), int(c.number("max", 32)))
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"status": pullNames[result.Status], "next_offset": result.NextBeginOffset,
		"min_offset": result.MinOffset, "max_offset": result.MaxOffset,
		"messages": allReceived(result.GetMessageExts()),
	}, nil
}

func (p *pullConsumers) commit(c command) (any, error) {
	made := p.byName[c.text("name", "")]
	if err := made.UpdateOffset(c.queue(), c.number("offset", 0)); err != nil {
		return nil, err
	}
	return nil, made.PersistOffset(context.Background(), c.text("topic", ""))
}

// poll until so many messages came or the time is over, acknowledging each batch.
func (p *pullConsumers) poll(c command) (any, error) {
	made := p.byName[c.text("name", "")]
	all := []any{}
	for end := time.Now().Add(c.timeout()); len(all) < int(c.number("count", 1)) && time.Now().Before(end); {
		request, err := made.Poll(context.Background(), 200*time.Millisecond)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, allReceived(request.GetMsgList())...)
		made.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	return all, nil
}
